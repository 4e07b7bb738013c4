"""An agent of pydantic-ai with one tool in each format, by base URL and key alone."""

import asyncio
import json

from pydantic_ai import Agent


async def main() -> None:
    answers = []
    for model in ["openai-chat:gpt-5-mini", "openai-responses:gpt-5-mini", "anthropic:claude-sonnet-4-5"]:
        agent = Agent(model, instructions="Be brief.")

        @agent.tool_plain
        def weather(city: str) -> str:
            """The weather of a city."""
            return f"21 degrees in {city}"

        answers.append((await agent.run("What is the weather in Paris?")).output)
        async with agent.run_stream("What is the weather in Paris?") as streamed:
            answers.append(await streamed.get_output())
    print(json.dumps(answers))


asyncio.run(main())

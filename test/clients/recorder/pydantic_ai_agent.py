"""Two turns of an agent with one tool, with the model that MODE names."""

import asyncio
import os

from pydantic_ai import Agent


async def main() -> None:
    model = os.environ["MODE"]
    settings = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 2048}} if "anthropic" in model else {}
    agent = Agent(model, instructions="You read the files of a harbour.", model_settings=settings)

    @agent.tool_plain
    def read_file(path: str, share: float = 0.5) -> str:
        """Reads a file, such as “été.ts”."""
        return f"{path}: The log of the harbour."

    history = []
    for words in ["Read the logs.", "Read them again."]:
        history = (await agent.run(words, message_history=history)).all_messages()


asyncio.run(main())

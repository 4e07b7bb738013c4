"""Two turns with one tool by the official client, in the format that MODE names."""

import os

from openai import OpenAI

client = OpenAI(max_retries=0)
system = "You read the files of a harbour."
parameters = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "share": {"type": "number", "minimum": 0.5, "maximum": 1.0}},
    "required": ["path"],
}
tool = {"name": "read_file", "description": "Reads a file, such as “été.ts”", "parameters": parameters}


def read(path: str) -> str:
    return f"{path}: The log of the harbour."


def chat() -> None:
    messages = [{"role": "system", "content": system}]
    for words in ["Read the logs.", "Read them again."]:
        messages.append({"role": "user", "content": words})
        calls = True
        while calls:
            answer = client.chat.completions.create(
                model="gpt-5-mini", messages=messages, tools=[{"type": "function", "function": tool}]
            )
            message = answer.choices[0].message
            messages.append(message)
            calls = message.tool_calls
            for call in calls or []:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": read(call.function.arguments)})


def responses() -> None:
    items = []
    for words in ["Read the logs.", "Read them again."]:
        items.append({"role": "user", "content": words})
        calls = True
        while calls:
            response = client.responses.create(
                model="gpt-5-mini",
                instructions=system,
                input=items,
                store=False,
                include=["reasoning.encrypted_content"],
                tools=[{"type": "function", **tool}],
            )
            items += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            for call in calls:
                output = read(call.arguments)
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


{"chat": chat, "responses": responses}[os.environ["MODE"]]()

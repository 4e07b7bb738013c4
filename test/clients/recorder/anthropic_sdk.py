"""Two turns with one tool by the official client of the messages format."""

from anthropic import Anthropic

client = Anthropic(max_retries=0)
parameters = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "share": {"type": "number", "minimum": 0.5, "maximum": 1.0}},
    "required": ["path"],
}
messages = []
for words in ["Read the logs.", "Read them again."]:
    messages.append({"role": "user", "content": words})
    calls = True
    while calls:
        answer = client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=4096,
            system="You read the files of a harbour.",
            thinking={"type": "enabled", "budget_tokens": 2048},
            messages=messages,
            tools=[{"name": "read_file", "description": "Reads a file, such as “été.ts”", "input_schema": parameters}],
        )
        messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if calls:
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": f"{call.input['path']}: The log of the harbour.",
                }
                for call in calls
            ]
            messages.append({"role": "user", "content": results})

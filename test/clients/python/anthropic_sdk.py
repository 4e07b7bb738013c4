"""The official client of the message format, by ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY alone."""

import json

from anthropic import Anthropic, NotFoundError

client = Anthropic(max_retries=0)
asked = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
}
message = client.messages.create(**asked)
with client.messages.stream(**asked) as events:
    streamed = events.get_final_text()
counted = client.messages.count_tokens(model=asked["model"], messages=asked["messages"])
try:
    client.messages.create(**{**asked, "model": "claude-sonnet-4-x"})
    refused = "nothing"
except NotFoundError as error:
    refused = error.body["error"]["type"]
print(
    json.dumps(
        [
            message.content[0].text,
            streamed,
            counted.input_tokens,
            refused,
            any(model.id.startswith("anthropic/claude-sonnet-4-5") for model in client.models.list()),
        ]
    )
)

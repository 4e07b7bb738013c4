"""The official client of the chat and responses formats, by OPENAI_BASE_URL and OPENAI_API_KEY alone."""

import json

from openai import OpenAI, NotFoundError

client = OpenAI(max_retries=0)
question = [{"role": "user", "content": "What is the weather in Paris?"}]
chat = client.chat.completions.create(model="gpt-5-mini", messages=question)
pieces = client.chat.completions.create(
    model="gpt-5-mini", messages=question, stream=True, stream_options={"include_usage": True}
)
streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
response = client.responses.create(model="gpt-5-mini", input="What is the weather in Paris?")
with client.responses.stream(model="gpt-5-mini", input="What is the weather in Paris?") as events:
    followed = events.get_final_response()
try:
    client.chat.completions.create(model="gpt-5-minx", messages=question)
    refused = "nothing"
except NotFoundError as error:
    refused = error.code
print(
    json.dumps(
        [
            chat.choices[0].message.content,
            streamed,
            response.output_text,
            followed.output_text,
            refused,
            any(model.id == "openai/gpt-5-mini" for model in client.models.list()),
        ]
    )
)

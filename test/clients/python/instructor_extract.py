"""A structured answer by instructor over the chat format, by OPENAI_BASE_URL and OPENAI_API_KEY alone."""

import json

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    degrees: int


client = instructor.from_openai(OpenAI(max_retries=0))
asked = {
    "model": "gpt-5-mini",
    "response_model": Place,
    "messages": [{"role": "user", "content": "It is 21 degrees in Paris."}],
}
place = client.chat.completions.create(**asked)
partial = list(client.chat.completions.create_partial(**asked))[-1]
print(json.dumps([place.model_dump(), partial.model_dump()]))

"""A structured answer whose first try does not match the schema, after an earlier turn."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Place(BaseModel):
    """A place, such as “Orléans”."""

    city: str
    degrees: int


client = instructor.from_openai(OpenAI(max_retries=0))
messages = [{"role": "system", "content": "You find places."}]
for words in ["It is 21 degrees there. The log of the harbour.", "And tomorrow?"]:
    messages.append({"role": "user", "content": words})
    place = client.chat.completions.create(
        model="gpt-5-mini", response_model=Place, messages=list(messages), max_retries=3
    )
    messages.append({"role": "assistant", "content": place.model_dump_json()})

"""Edits one file in three messages."""

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model

io = InputOutput(yes=True)
coder = Coder.create(
    main_model=Model("openai/gpt-5-mini"), io=io, fnames=["note.txt"], use_git=False, stream=False, auto_commits=False
)
for words in ["Change the line.", "Change it again.", "And again."]:
    coder.run(with_message=words)

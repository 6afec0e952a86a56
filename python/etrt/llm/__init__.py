"""A language model end to end: GGUF file -> program (.pte) -> conversations."""

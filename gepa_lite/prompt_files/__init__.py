"""Prompts that live in files of the user's own: a folder of texts, or keys of a YAML file."""

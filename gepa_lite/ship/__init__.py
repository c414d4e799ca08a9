"""What leaves a run: the result, and the bundle of prompts with its evidence."""

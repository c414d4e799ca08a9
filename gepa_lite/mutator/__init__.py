"""A small model trained to rewrite prompts, on what runs have recorded (evolution fine-tuning, arXiv 2606.29082, in the small). Start at ``training.py``."""

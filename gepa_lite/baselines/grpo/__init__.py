"""Group relative policy optimization (GRPO, arXiv 2402.03300) of the open model behind a program, as an optimizer beside the others.

``rows`` turns rollouts into rows of training; it needs no torch.
"""

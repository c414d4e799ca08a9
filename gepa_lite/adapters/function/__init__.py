"""Any callable as a program: its prompts are given to it, or read by ``gl.prompt`` deep inside."""

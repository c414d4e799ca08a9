"""The algorithm, pure: it reads no clock, opens no file, starts no thread. Start reading at ``loop.py``."""

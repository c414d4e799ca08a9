"""Programs that run the optimizers of other packages, each in a process and, where it must be, an environment of its own.

They are run by path, import nothing of ours, hold no key and open no connection: rollouts and replies of the reflection model come over standard input and output, so that every call
is made, counted and kept by the run that started them.
"""

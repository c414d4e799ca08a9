"""The live pages: the views of a report and more, over a folder of runs, while they go on. They read the store; the one thing they write is an ask."""

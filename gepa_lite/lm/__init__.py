"""Talk to a model: the protocol, the litellm client, the embedded llama.cpp, retries, the cache and prices."""

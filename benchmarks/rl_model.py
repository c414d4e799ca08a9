"""A language model of a hundred thousand weights: letters are its tokens, and a few seconds of training teach it to answer in a form."""

from __future__ import annotations

import random
import string
from pathlib import Path

SIZE = 48


def make_tiny(folder: Path, answers: list[str], steps: int = 60, seed: int = 0) -> Path:
    """Write a model that answers every prompt with one of the answers, drawn at random.

    Args:
        folder: where to.
        answers: what it says.
        steps: of learning to say it.
        seed: of its weights.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = ["<pad>", "<s>", "</s>", "<unk>", *string.printable[:95], "\n"]
    core = Tokenizer(models.WordLevel({letter: place for place, letter in enumerate(letters)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    tokenizer.chat_template = "<s>{% for message in messages %}{{ message['content'][-40:] }}\n{% endfor %}>"
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=SIZE,
        intermediate_size=2 * SIZE,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = random.Random(seed)
    for _ in range(steps):
        rows = []
        for _ in range(16):
            prompt = "".join(draw.choice(string.ascii_lowercase + " ") for _ in range(80))
            ids = tokenizer.encode(f"{prompt}\n>", add_special_tokens=False)
            reply = [*tokenizer.encode(draw.choice(answers), add_special_tokens=False), 2]
            rows.append((ids, reply))
        width = max(len(ids) + len(reply) for ids, reply in rows)
        tokens = torch.tensor([[0] * (width - len(i) - len(r)) + i + r for i, r in rows])
        labels = torch.tensor([[-100] * (width - len(r)) + r for _, r in rows])
        model(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

"""A second reference for windowed_model.py: transformers' own model over the dequantised weights of a GGUF file, float32.

It shares nothing with reference.py but the dequantisation: configuration, windows, RoPE and masks are transformers'. Needs
torch, transformers, accelerate and gguf; loading takes about a minute. Same methods as reference.Reference, as far as
windowed_model.py asks for them.
"""

import os

import numpy as np
import torch
import transformers


class TorchReference:
    def __init__(self, path):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path), dtype=torch.float32,
            attn_implementation="eager")
        self.model.eval()

    def rows(self, tokens, **kept):
        return self.model.model(input_ids=torch.tensor([[int(token) for token in tokens]]), **kept)

    def next_logprobs(self, tokens, rows=256):
        """float64: the log-probability of each of tokens[1:] behind those before it."""
        found = [np.empty(0)]
        if len(tokens) < 2:
            return found[0]
        with torch.no_grad():
            hidden = self.rows(tokens[:-1], use_cache=False).last_hidden_state[0]
            for begin in range(0, len(hidden), rows):
                logprobs = torch.log_softmax(self.model.lm_head(hidden[begin:begin + rows]).double(), dim=-1)
                following = torch.tensor(tokens[1 + begin:1 + begin + len(logprobs)])
                found.append(logprobs.gather(1, following[:, None])[:, 0].numpy())
        return np.concatenate(found)

    def greedy(self, tokens, steps):
        """`steps` tokens of the greedy path, and for each the best 5 (id, logit)."""
        path, best, kept, feed = [], [], None, tokens
        with torch.no_grad():
            for _ in range(steps):
                out = self.rows(feed, use_cache=True, past_key_values=kept)
                kept = out.past_key_values
                logits = self.model.lm_head(out.last_hidden_state[0, -1])
                top = torch.topk(logits, 5)
                best.append(list(zip(top.indices.tolist(), top.values.tolist())))
                path.append(best[-1][0][0])
                feed = path[-1:]
        return path, best

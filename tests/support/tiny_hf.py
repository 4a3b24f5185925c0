"""A tiny Hugging Face CTC checkpoint with random weights, saved without a network."""

import json
from pathlib import Path

import torch


def make_checkpoint(folder: Path, letters: str = "abcdef", **changes) -> Path:
    """wav2vec 2.0 that writes `letters` and "|"; its blank, <pad>, is not label 0. 200 frames a second."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: i for i, token in enumerate(["|", *letters, "<unk>", "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(
        str(folder / "vocab.json"), unk_token="<unk>", pad_token="<pad>", word_delimiter_token="|"
    )
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=16000, do_normalize=True)
    transformers.Wav2Vec2Processor(feature_extractor=extractor, tokenizer=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    sizes |= {"conv_dim": (16, 16, 16), "conv_stride": (5, 4, 4), "conv_kernel": (10, 8, 4)}
    sizes |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": vocabulary["<pad>"]}
    config = transformers.Wav2Vec2Config(**(sizes | changes))
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)
    return folder

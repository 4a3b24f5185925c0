"""Conformer and E-Branchformer encoders: features (N, T, F) in, encoded frames (N, T', D) out.

Written for two promises. An utterance's output does not depend on the batch it came in or on how far that batch is
padded, and no frame-wise work is spent on padding. One device gives both: inside the encoder the frames of a batch
are *packed*, (M, D) with M the sum of the lengths, so feed-forward layers, norms and batch statistics never see
padding. Only attention and depthwise convolution, which look along time, unpack to (N, T, D), with zeros as padding.

The equations are those of ESPnet (relative positions of its "latest" kind), whose weights `from_espnet` loads.
"""

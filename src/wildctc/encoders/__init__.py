"""Conformer and E-Branchformer encoders: features (N, T, F) in, encoded frames (N, T', D) out.

The encoders keep two promises: the output of an utterance does not depend on its batch or on how far that batch is
padded, and no time is spent on padding. For both, the frames of a batch are *packed* inside the encoder: (M, D), where
M is the sum of the lengths. So feed-forward layers, norms and batch statistics never see padding. Only attention and
depthwise convolution, which work along time, unpack to (N, T, D), with zeros as padding.

The equations are those of ESPnet (relative positions of its "latest" kind), whose weights `from_espnet` loads.
"""

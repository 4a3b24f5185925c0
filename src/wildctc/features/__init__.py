"""Features: a filterbank or a frozen pretrained front end, cached on disk, and how they are varied for training.

A front end turns a wave into frames and is never trained, so each utterance goes through it once for every speed; what
comes out is kept on disk. Masking and warping (SpecAugment) act on the frames, whichever front end made them.
"""

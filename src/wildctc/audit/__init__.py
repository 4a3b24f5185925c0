"""The audit: where does the audio not support what is written, and where do annotators disagree?"""

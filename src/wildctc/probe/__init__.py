"""The probe: which tokens and words of a transcript were not said?"""

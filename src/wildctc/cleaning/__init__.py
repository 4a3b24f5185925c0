"""`wildctc clean`: a manifest whose doubtful transcripts are dropped, corrected or weighted by what a probe found."""

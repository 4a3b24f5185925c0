"""WildCTC inside the trainers that people already use. Each module imports its framework; nothing here does."""

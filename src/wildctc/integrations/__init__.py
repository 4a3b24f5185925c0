"""WildCTC inside other trainers. Each module imports its own framework; importing this package imports none."""

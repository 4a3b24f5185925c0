"""Sound files: reading, resampling, and cutting long recordings at pauses."""

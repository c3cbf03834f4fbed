"""What is told beside the tales: each function makes one text, ``KINDS`` says how often."""

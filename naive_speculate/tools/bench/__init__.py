"""`python -m naive_speculate bench`: compares this decoder with transformers' generation on the
same pair and prompts.

Everything runs alternately in one process, so that other programs slow all ways equally. Speeds
and times are medians; ratios of speeds are geometric means (see `naive_speculate.tools.ratio`).
"""

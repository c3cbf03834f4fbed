"""A draft head: one decoder layer that drafts from the target's hidden states (EAGLE-3, Li et al. 2025, arXiv 2503.01840)."""

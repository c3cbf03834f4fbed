"""Draft heads: a few layers that draft from the target's hidden states (such as EAGLE-3, Li et al. 2025, arXiv 2503.01840)."""

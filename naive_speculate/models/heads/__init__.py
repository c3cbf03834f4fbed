"""Draft heads: a few layers that draft from the target's hidden states (EAGLE-3, DFlash)."""

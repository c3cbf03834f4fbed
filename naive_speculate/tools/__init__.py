"""Tools around the decoder: `bench` measures it, `prove`, `differ` and `doctor` examine other
engines, `watch` records transformers' own decoding. The decoder never imports them."""

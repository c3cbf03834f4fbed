"""Tools around the decoder, which never imports them: `bench` measures it, `prove`, `differ` and
`doctor` examine other engines, `watch` records transformers' own decoding, `proofs` enumerate
every path, `show` draws runs for people; and the command line."""

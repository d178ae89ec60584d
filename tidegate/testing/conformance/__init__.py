"""The conformance suite: one call checks that a source or a sink keeps the rules that runners rely on."""

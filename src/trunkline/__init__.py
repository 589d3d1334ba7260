"""Trunkline: a disaggregated prefill/decode cluster for LLMs whose prompts share long prefixes."""

__version__ = "0.1.0"

"""Ready-made feedback functions: a score and a diagnosis that teaches. Import them as ``gepa_lite.feedback.<module>``."""

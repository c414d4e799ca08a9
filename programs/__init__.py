"""Ready-made programs: copy one and change it, or use it as it is. Import them as ``gepa_lite.programs.<module>``."""

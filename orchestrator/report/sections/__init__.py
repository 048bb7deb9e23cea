"""The report's tables, figures and sentences for each part of an analysis."""

"""What the report says about each part of an analysis: tables, figures and sentences."""

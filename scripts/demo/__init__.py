"""The shipped scenario: five competitors are analysed, a report is written, announced and mailed."""

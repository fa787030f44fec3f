"""What commands print: tables, CSV, JSON and YAML that fit where they are read, logs, questions and progress."""

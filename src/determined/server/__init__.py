"""The page and its API over a store: `det ui` serves it. Nothing else imports this room."""

"""What the page of one run shows, made ready for its template; the template, style and script lie beside."""

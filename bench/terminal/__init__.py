"""What commands read and print.

`values` and `names` are what is typed, and how a mistake is said; `console` and `streams` where answers go; `foot`
what stands below them meanwhile; `render` and `formats` how tables look; `words` what things are called.
"""

"""What commands read and print.

`values` and `names` are what is typed, and how a mistake is said; `console` and `streams` where answers go; `render`
and `formats` how tables look; `words` what things are called.
"""

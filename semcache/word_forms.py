"""Forms of words: irregular inflections, lookalikes, numbers and units in words. Data only: English, lower case."""

from semcache.lexicon import words

# Words that a typo turns into one another, though each is a word: no evidence of a typo.
CONFUSABLE = """
county country
county count
country count
patent patient
prostate prostrate
trial trail
trial tribal
martial marital
statue statute
desert dessert
dairy diary
angel angle
casual causal
casualty causality
moral morale
human humane
quiet quite
united untied
through thorough
complaint compliant
conversation conservation
sacred scared
scared scarred
later latter
heroin heroine
carton cartoon
custom costume
planet plant
planet plane
tablet table
cover clover
place palace
single singe
mouse mousse
metal mental
hotel hostel
price prince
brother bother
board broad
coast coats
finance fiance
treat threat
trust thrust
thirst thrust
chart charter
learn lean
heart heat
clothe cloth
breathe breath
bathe bath
colon colony
corporal corporeal
paint pint
point pint
diver driver
friend fiend
silver sliver
signed singed
spirit sprite
saliva salvia
satin stain
statin satin
statin stain
stating statin
infraction infarction
ingenious ingenuous
perpetrate perpetuate
precede proceed
immigrate emigrate
immigration emigration
cavalry calvary
neural neutral
rational ration
rational rationale
local locale
personal persona
personal personnel
bridge bride
brand brandy
candy candid
beside besides
cooperation corporation
hyperthermia hypothermia
adoption adaption
scrape scape
salary salty
staple stale
twine twin
window widow
unity unit
charger charge
crash cash
crown crow
crate create
beach breach
bleach beach
board aboard
brake break
brown brow
organ organic
scarf scar
shore shoe
speed seed
steam team
stream steam
strain train
strain stain
start tart
state estate
tower towel
trade tirade
trait traitor
tread thread
wander wonder
whole hole
"""

# Words whose ending is no inflection: plane is not plan, marketing not market, apply not app.
UNINFLECTED = words(
    """
    accounting apply bare bathe being bite bore breathe building cane cape care carte clothe code cube cure cute
    cutting dine early evening fate file fine fire forte gripe heroine hide hire hope household housing humane kite
    lapse late limited locale lone marketing mate meeting mine morale morning note nothing ore pane pine plane
    planning pope rate rating rationale reply ripe robe scare sing site slope spring stare string supply tape tense
    theme thing tone training tube united urbane wedding wine wire
    """
)

IRREGULAR = {
    word: line.split()[0]
    for line in """
    buy bought
    find found
    keep kept
    lose lost
    understand understood
    see saw seen
    take took taken
    give gave given
    write wrote written
    break broke broken
    steal stole stolen
    choose chose chosen
    send sent
    spend spent
    build built
    sell sold
    tell told
    pay paid
    make made
    think thought
    teach taught
    catch caught
    bring brought
    leave left
    feel felt
    hold held
    meet met
    lead led
    win won
    know knew known
    grow grew grown
    drive drove driven
    eat ate eaten
    forget forgot forgotten
    begin began begun
    run ran
    come came
    go went gone
    child children
    person people
    man men
    woman women
    foot feet
    tooth teeth
    mouse mice
    """.strip().splitlines()
    for word in line.split()[1:]
}

UNITS = """
s sec secs second seconds
min mins minute minutes
h hr hrs hour hours
day days
week weeks wk
month months
year years yr yrs
ms millisecond milliseconds
mm millimeter millimeters millimetre
cm centimeter centimeters centimetre
m meter meters metre metres
km kilometer kilometers kilometre kilometres
mi mile miles
in inch inches
ft foot feet
yd yard yards
g gram grams
kg kilo kilos kilogram kilograms
lb lbs pound pounds
oz ounce ounces
l liter liters litre litres
ml milliliter milliliters
gal gallon gallons
kb kilobyte kilobytes
mb megabyte megabytes
gb gigabyte gigabytes gig gigs
tb terabyte terabytes
mbps
gbps
hz
khz
mhz
ghz
w watt watts
kw
v volt volts
a amp amps
c celsius centigrade
f fahrenheit
k kelvin thousand
usd dollar dollars bucks $
eur euro euros €
gbp sterling £
jpy yen ¥
inr rupee rupees rs ₹
percent percentage % pct
am
pm
bc bce
ad ce
million mn
billion bn
lakh lakhs
crore crores
"""

NUMBER_WORDS = {
    word: str(number)
    for number, words in {
        0: "zero",
        1: "first 1st",
        2: "two second",
        3: "three third",
        4: "four fourth",
        5: "five fifth",
        6: "six sixth",
        7: "seven seventh",
        8: "eight eighth",
        9: "nine ninth",
        10: "ten tenth",
        11: "eleven eleventh",
        12: "twelve twelfth dozen",
        13: "thirteen",
        14: "fourteen",
        15: "fifteen",
        16: "sixteen",
        17: "seventeen",
        18: "eighteen",
        19: "nineteen",
        20: "twenty",
        30: "thirty",
        40: "forty",
        50: "fifty",
        60: "sixty",
        70: "seventy",
        80: "eighty",
        90: "ninety",
        100: "hundred",
        1000: "thousand",
        1_000_000: "million",
        1_000_000_000: "billion",
    }.items()
    for word in words.split()
}

"""Word lists that the guards compare questions by. Data only: English, lower case, written for this project."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that carry no subject matter of their own: they may come, go and change without a new answer.
FUNCTION_WORDS = _words(
    """
    a an the this that these those there here it its itself some any such so as at by for from in into of on onto to
    upon with within about and or but if then than because while when where who whom whose which what why how
    i me my mine we us our ours you your yours he him his she her hers they them their theirs one someone somebody
    something anyone anything be am is are was were been being do does did doing done have has had having can could may
    might must shall should will would ought get gets got getting go going gonna let lets
    please kindly just really actually indeed truly literally simply basically exactly precisely quite very also too
    well now ok okay hi hello hey thanks thank thx sir dear pls plz anyway again fact currently right
    tell show give explain describe know understand say ask wonder wondering want wants wanted wanna need needs needed
    like help mean means question answer information info details detail possible able way ways thing things best
    not no nor never re ve ll s t d m o
    more most less least much many lot lots
    """
)

# What denies. Counted: a question with one more of them is another question.
NEGATIONS = _words(
    """
    not no never none nobody nothing nowhere neither nor without dont doesnt didnt isnt arent wasnt werent wont wouldnt
    shouldnt couldnt hasnt havent hadnt aint mustnt neednt unable non except excluding unless hardly barely stop avoid
    prevent refuse lack lacking
    """
)

NEGATING_PREFIXES = ("non", "un", "in", "im", "il", "ir", "dis", "mis", "de", "anti", "counter", "ab", "a")

# Each line: two sides that exclude each other. A word of one side only here, of the other only there: not the same.
OPPOSITES = """
on | off
in | out outside
into | outof
inside | outside
up | down
over | under below beneath
above | below beneath under
before | after
before prior until till | since
within during | after outside beyond
to | from
with | without
and | or
all every each | none some few
always | never sometimes rarely
more most | less least fewer
many | few
increase increasing higher maximise maximize | decrease decreasing reduce lower minimise minimize
more maximum max | fewer minimum min
best better good | worst worse bad
can could | should must
first | last final
next upcoming future | last previous past
enable activate allow permit unblock unmute start open | disable deactivate forbid deny block mute stop end close
start begin launch open | stop end finish quit exit shut close cancel
add insert append include attach | remove delete exclude detach drop subtract
create make build | delete destroy remove drop
install | uninstall remove
import | export
upload | download
upgrade update | downgrade rollback
buy purchase | sell rent lease
lend | borrow
send give pay transfer deposit | receive take withdraw collect
deposit | withdraw withdrawal
push | pull
encode encrypt compress zip lock | decode decrypt decompress unzip unlock
connect join link subscribe follow | disconnect leave unlink unsubscribe unfollow
login signin | logout signout
win gain profit earn | lose loss spend
accept approve agree like love | reject refuse deny disagree dislike hate
ascending | descending
ascend rise raise grow | descend fall lower shrink
hot warm | cold cool
big large bigger larger huge | small little smaller tiny
long longer | short shorter
tall taller high | short shorter low
fast faster quick | slow slower
old older | new newer young younger
early earlier | late later
near close | far distant
easy easier simple | hard harder difficult complex
cheap cheaper free | expensive pricey paid
rich | poor
full complete | empty partial part
full fulltime | part parttime half
public | private
internal | external
input | output
import imports | export exports
left | right
north northern | south southern
east eastern | west western
male man men mr | female woman women mrs ms
boy husband father son brother uncle | girl wife mother daughter sister aunt
day | night
morning | evening afternoon night
today | tomorrow yesterday
yesterday | tomorrow
weekday weekdays | weekend weekends
single | married multiple double
single | joint return
one-way oneway | round roundtrip
domestic | international
local | remote global
online | offline
physical | virtual digital
credit | debit
checking current | savings
checkin | checkout
arrive arrival arrivals | depart departure departures leave
import | export
client | server
source | destination target
parent | child
true | false
yes | no
positive | negative
legal allowed | illegal prohibited banned forbidden
safe | dangerous unsafe harmful
healthy | unhealthy sick
alive living | dead
pass passed | fail failed
success succeed | failure fail
present | absent
even | odd
minor | major
junior | senior
primary | secondary
upper | lower
front | back rear
top | bottom
horizontal | vertical
row rows | column columns
synchronous sync | asynchronous async
static | dynamic
vegan vegetarian | meat
wet | dry
strong stronger | weak weaker
heavy heavier | light lighter
thick thicker | thin thinner
wide wider | narrow narrower
deep | shallow
dark | light bright
soft | hard
loud | quiet
war | peace
employer | employee
buyer customer | seller vendor
landlord | tenant
teacher | student
plus add | minus subtract
multiply | divide
gross | net
fixed | variable
optional | required mandatory
temporary | permanent
manual manually | automatic automatically
optimistic | pessimistic
religious | secular
brave | cowardly afraid
proud | ashamed humble
guilty | innocent
lead lender | borrower
"""

# Words that mean the same often enough that one may stand for the other.
SYNONYMS = """
reset change modify edit alter
fix repair solve resolve troubleshoot
delete remove erase
create make build generate set
buy purchase order
begin start
enable activate turn switch
disable deactivate
big large huge
quick quickly fast rapid rapidly
error exception bug
cost price fee charge charges costs
refund reimbursement reimburse
car automobile
phone telephone mobile cellphone cell
photo picture image pic
movie film
kid child children kids
doctor physician
job work
find locate search look
method approach technique
difference differences differ differs
steps step procedure process
city town
country nation
tip tips advice suggestion suggestions recommend recommendation
good great excellent
lose lost losing misplace misplaced
stolen steal theft
email mail
sign log signin login
cancel cancelled canceled
arrive arrived come came
happy joyful glad
smart intelligent clever
learn study
speak talk
use using used
main primary
write compose
convert transform
shut close
pay payment paid
bill invoice
laptop notebook
application app program
website site webpage
"""

# Adding one of these changes what is asked for, however near the rest is.
RESTRICTIONS = _words(
    """
    only except without instead besides alone again still already former formerly ex becoming become future
    simultaneously both either partly half twice double triple
    briefly short shortly detailed sentence sentences paragraph word words list table bullet bullets json yaml xml csv
    html markdown code step
    monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday tonight morning afternoon evening
    night weekend weekly daily monthly yearly annual annually hourly
    january february march april june july august september october november december
    spring summer autumn winter
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

# What stands on their two sides may change places.
JOINERS = _words("and or vs versus")

# Relations that hold both ways.
SYMMETRIC = _words(
    """
    between difference differences differ compare comparison compared distance married related connected engaged friends
    """
)

# After these stands what a direction, a comparison or an action points at.
DIRECTED = _words("to into from than before after by against over without instead per onto toward towards")

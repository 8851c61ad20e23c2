"""Word lists that the guards compare questions by. Data only: English, lower case, written for this project."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that carry no subject matter of their own: they may come, go and change without a new answer.
FUNCTION_WORDS = words(
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
    more most less least much many lot lots although though asap wo sha
    """
)

# What denies. Counted: a question with one more of them is another question.
NEGATIONS = words(
    """
    not no never none nobody nothing nowhere neither nor without dont doesnt didnt isnt arent wasnt werent wont wouldnt
    shouldnt couldnt hasnt havent hadnt aint mustnt neednt unable non except excluding unless hardly barely stop avoid
    prevent refuse lack lacking
    nicht kein keine keinen keiner keinem ohne pas jamais nunca
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
more most maximum max | less least fewer minimum min
many | few
increase increasing higher maximise maximize | decrease decreasing reduce lower minimise minimize
best better good | worst worse bad
can could may might | should must
should | will
first | last final
next upcoming future | last previous past
enable activate allow permit unblock unmute start open | disable deactivate forbid deny block mute stop end close
start begin launch open | stop end finish quit exit shut close cancel
add insert append include attach | remove delete exclude detach drop subtract
create make build | delete destroy remove drop
install | uninstall remove
upload | download
upgrade update | downgrade rollback
buy purchase | sell rent lease
lend | borrow
send give pay transfer deposit | receive take withdraw withdrawal collect
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
full fulltime complete | empty partial part parttime half
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
plus | minus
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
lender | borrower
"""

# Words that mean the same often enough that one may stand for the other.
SYNONYMS = """
change modify edit alter
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
phone telephone mobile cellphone
photo picture image pic
movie film
kid child children kids
doctor physician
job work
find locate look
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
tall height
wide width
deep depth
heavy weight
"""

# What a name may leave out: a Netflix account, Netflix.
GENERIC_NOUNS = words(
    """
    account subscription membership app application software program website site page service company product device
    platform tool system language city country area place town number name plan card order time date day way option
    process due extra using liked understood meant
    """
)

# Adding one of these changes what is asked for, however near the rest is.
RESTRICTIONS = words(
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

QUESTION_WORDS = words("who whom whose what which when where why how")

# Relations that a question can't take on or leave without another answer.
RELATIONS = words("before after against without until till beyond despite per among amongst via toward towards")

# Two of a line before the same word: write to my manager, write about my manager.
CLASHING_PREPOSITIONS = """
to about
to from
to in
from about
from for
by about
by from
"""

# The head of a question that asks for a duty, before "I" and after.
OBLIGATIONS = frozenset((who, verb) for who in ("i", "we", "you", "one") for verb in ("need", "have"))

# What one says to another, in classes; not to those who are only addressed: tell me how, ask you whether.
SPEECH_ACTS = {"ask": "ask", "request": "ask", "tell": "tell", "answer": "tell", "give": "give", "offer": "give"}
ADDRESSEES = words("me us you u if whether how what why when where who which is are this that to and or")

# Bounds of a number, in the phrases that stand before it.
BOUNDS = {
    "more": "more than, greater than, higher than, larger than, bigger than, longer than, older than, over, above, "
    "exceeding, exceeds, exceed, beyond, in excess of",
    "less": "less than, fewer than, lower than, smaller than, shorter than, younger than, under, below",
    "at least": "at least, no less than, no fewer than, not less than, minimum of, minimum",
    "at most": "at most, up to, no more than, not more than, maximum of, maximum",
}

# What stands on their two sides may change places.
JOINERS = words("and or vs versus")

# Relations that hold both ways.
SYMMETRIC = words("between difference differences differ compare comparison compared")

# And those that hold both ways also from one to the other.
RECIPROCAL = words("distance married related connected engaged friends")

# After these stands what a direction, a comparison or an action points at.
DIRECTED = words("to into from than before after by against over without instead per onto toward towards")

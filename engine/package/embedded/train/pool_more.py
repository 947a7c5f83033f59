"""More tools, words and attributes that are only used for training (own writing); see gen_data.py.
None of them has the name or the purpose of a tool of HELD_ACTIONS / HELD_LOOKUPS in pool.py."""

MORE_ACTIONS = """book_haircut,haircut,salon_booking|Make an appointment at the hairdresser|day:day time:time|get me a haircut {day} at {time};I need my hair cut {day} at {time};book the salon for {day}, {time}|the haircut is booked
call_doctor,doctor_visit|Arrange a visit to a doctor|name:person reason:topic?|arrange a visit to doctor {name}[ about {reason}];I have to see doctor {name}[ because of {reason}];get me an appointment with {name}[ about {reason}]|you will see {name}
refill_prescription,medicine_refill|Order a medicine again|medicine:word packs:int1-5?|refill my {medicine}[, {packs} packs];I ran out of {medicine}, order[ {packs} packs of] it again;get[ {packs}] more {medicine} from the pharmacy|{medicine} is ordered
walk_dog,dog_walker|Hire a walker for a dog|pet:pet minutes:int10-120|take {pet} out for {minutes} minutes;have someone walk {pet} for {minutes} minutes;{pet} needs a {minutes} minute walk|the walk with {pet} is planned
call_vet,vet_appointment|Visit the animal doctor|pet:pet day:day|take {pet} to the vet {day};get {pet} seen by the animal doctor {day};{pet} is sick, book the vet {day}|the vet sees {pet}
set_oven,oven,preheat|Heat the oven|degrees:int80-250 minutes:int5-120?|preheat the oven to {degrees} degrees[ for {minutes} minutes];bake at {degrees}[ for {minutes} minutes];make the oven {degrees} degrees hot|the oven heats up
run_dishwasher,dishes|Wash the dishes|program:enum(eco/normal/intense) delay:int1-12?|wash the dishes on {program}[ in {delay} hours];run the dishwasher on {program};clean the plates with the {program} program|the dishes get clean
do_laundry,washing_machine|Wash clothes|program:enum(cotton/wool/quick) degrees:int20-90?|wash my clothes on {program}[ at {degrees} degrees];do a {program} laundry[ at {degrees}];start the washing machine with {program}|the laundry runs
turn_on_tv,tv_on,television|Watch a television channel|channel:int1-99 volume:int0-50?|switch the television to channel {channel}[ at volume {volume}];put on channel {channel};I want to watch channel {channel}[, volume {volume}]|channel {channel} is on
record_show,dvr|Record a television show|show:movie episodes:int1-20?|tape {show}[, {episodes} episodes];record[ {episodes} episodes of] {show};do not let me miss {show}|{show} will be recorded
rent_movie,movie_rental|Watch a movie at home|movie:movie quality:enum(sd/hd/uhd)?|rent {movie}[ in {quality}];let us watch {movie}[ in {quality}];stream {movie} tonight|{movie} is ready
buy_tickets,cinema,event_tickets|Buy cinema tickets|movie:movie seats:int1-9 day:day?|buy {seats} tickets for {movie}[ {day}];get us {seats} seats in {movie}[ {day}];{seats} of us want to see {movie}[ {day}]|the seats are yours
open_garage,garage_door|Move the garage door|state:bool(open/close)|{state} the garage door;{state} the garage please;please {state} the big door|the garage door moves
set_fan,fan,ventilation|Set the speed of the fan|room:room speed:enum(off/low/medium/high)|set the fan in the {room} to {speed};{speed} ventilation in the {room};make the {room} fan run on {speed}|the fan in the {room} is set
feed_fish,aquarium|Feed the aquarium|portions:int1-5|feed the fish {portions} portions;drop {portions} portions into the aquarium;give the fish {portions} portions|the fish are fed
water_lawn_report,lawn_report|Report about the lawn|day:day|how is the lawn {day};send me the lawn report for {day}|here is the report
pick_playlist,mood_music|Play music for a mood|mood:enum(happy/calm/sad/focus) minutes:int10-180?|play something {mood}[ for {minutes} minutes];I need {mood} music[ for {minutes} minutes];put on a {mood} mix|the {mood} mix plays
follow_artist,subscribe_artist|Get news of a band|artist:artist|follow {artist};keep me posted about {artist};I like {artist}, follow them|you follow {artist}
join_meeting,meeting_join|Enter a video meeting|code:id muted:flag(with the microphone off)?|join meeting {code}[ {muted}];connect me to the call {code}[ {muted}];let me into {code}[ {muted}]|you are in {code}
record_meeting,meeting_record|Record the meeting|name:title|record {name};make a recording of {name};keep a video of {name}|{name} is recorded
share_screen,present|Show my screen to others|window:title|share the window {window};present {window};let them see {window}|{window} is shared
move_event,reschedule|Move a calendar event to another day|event:title day:day time:time?|move {event} to {day}[ at {time}];reschedule {event} to {day}[, {time}];shift {event} to {day}[ at {time}]|{event} is moved
forward_mail,mail_forward|Forward an email|id:id to:email|forward mail {id} to {to};pass message {id} on to {to};send {id} along to {to}|{id} is forwarded
delete_mail,trash_mail|Delete an email|id:id|delete mail {id};get rid of message {id};throw mail {id} away|{id} is gone
flag_mail,star_mail|Mark an email as important|id:id|mark mail {id} as important;put a star on {id};flag the message {id}|{id} is flagged
block_number,block_contact|Block a caller|number:id|block {number};never let {number} call me again;stop calls from {number}|{number} is blocked
add_contact,new_contact|Save a contact|name:person email:email?|save {name} as a contact[ with {email}];add {name}[, {email},] to my contacts;new contact {name}[, mail {email}]|{name} is saved
translate_page,page_translator|Translate a web page|url:path language:language|translate the page {url} into {language};show {url} in {language};I want to read {url} in {language}|the page is in {language}
bookmark,save_link|Remember a web page|url:path tag:topic?|bookmark {url}[ under {tag}];remember the page {url}[ as {tag}];keep {url} for later[ in {tag}]|{url} is bookmarked
shorten_link,short_url|Make a short link|url:path|shorten {url};make a short link to {url};{url} is too long, shorten it|the link is short
run_query,sql,database_query|Run a database query|server:server query:topic limit:int1-500?|run the query {query} on {server}[ with limit {limit}];ask {server} for {query}[, at most {limit}];query {server}: {query}|the query ran
create_branch,git_branch|Start a new code branch|name:word base:word?|create the branch {name}[ from {base}];start a branch {name}[ off {base}];branch {name} please|{name} exists
run_tests,test_suite|Run the tests of a project|project:service filter:word?|run the tests of {project}[ matching {filter}];test {project}[, only {filter}];does {project} pass its tests|the tests ran
build_image,docker_build|Build a container image|service:service tag:ver|build the image of {service} with tag {tag};make a container of {service}, tag {tag};package {service} as {tag}|the image is built
open_port,firewall|Allow a network port|server:server port:int20-9000|open port {port} on {server};let traffic into {server} on {port};allow {port} on {server}|port {port} is open
add_user,new_account|Create a user account|name:person admin:flag(as admin)?|create an account for {name}[ {admin}];{name} needs a login[ {admin}];add the user {name}[ {admin}]|{name} can log in
reset_password,new_password|Set a new password for a user|user:person|reset the password of {user};{user} forgot the password;let {user} choose a new password|{user} gets a mail
set_alert,watch_metric|Warn when a service is slow|service:service threshold:int10-900|warn me when {service} goes over {threshold};set an alert on {service} at {threshold};tell me if {service} gets above {threshold}|the alert is set
sell_stock,sell_shares|Sell shares|company:company shares:int1-100|sell {shares} shares of {company};get rid of {shares} {company} shares;dump {shares} of {company}|the {company} shares are sold
pay_bill,bill_payment|Pay a bill|company:company amount:num|pay the bill of {company}, {amount} euros;settle {amount} with {company};{company} wants {amount}, pay it|the bill is paid
split_bill,share_costs|Split costs between people|amount:num people:list(person)|split {amount} between {people};share the {amount} bill among {people};{people} each pay a part of {amount}|the bill is split
freeze_card,card_lock|Block a bank card|card:id|freeze my card {card};I lost the card {card};block card {card}|the card is frozen
set_budget,budget_limit|Set a spending limit|category:item amount:int10-900|limit my spending on {category} to {amount};budget {amount} for {category};I want to spend at most {amount} on {category}|the budget is set
track_package,parcel_tracking|Follow a parcel|code:id|where is my parcel {code};follow the package {code};track {code}|the parcel is on the way
return_item,refund|Send a product back|item:item reason:message?|return the {item}[ because {reason}];I want my money back for the {item}[: {reason}];send the {item} back[, {reason}]|the return of {item} is open
order_flowers,flowers,florist|Send flowers|to:person color:color?|send[ {color}] flowers to {to};surprise {to} with a[ {color}] bouquet;order[ {color}] roses for {to}|{to} gets flowers
order_groceries,groceries|Have groceries delivered|items:list(item) day:day?|have {items} delivered[ {day}];order {items} from the market[ for {day}];bring me {items}[ {day}]|the groceries come
find_recipe,recipe_search|Search recipes|ingredient:food minutes:int5-90?|find a recipe with {ingredient}[ in under {minutes} minutes];what can I cook with {ingredient}[ in {minutes} minutes];I have {ingredient}, suggest a dish|!found
log_sleep,sleep_diary|Record how long I slept|hours:num|I slept {hours} hours;log {hours} hours of sleep;note that I was asleep for {hours} hours|the sleep is logged
log_mood,mood_diary|Record how I feel|mood:enum(good/bad/tired/angry) note:message?|I feel {mood}[: {note}];log my mood as {mood}[ with the note {note}];today I am {mood}[, {note}]|the mood is logged
count_steps,step_goal|Set a step goal|steps:int1000-20000|set my step goal to {steps};I want to walk {steps} steps;make {steps} steps the target|the goal is {steps}
start_meditation,meditate|Guided relaxation|minutes:int3-60 voice:enum(male/female)?|meditate for {minutes} minutes[ with a {voice} voice];help me relax for {minutes} minutes;guide me through {minutes} quiet minutes[, {voice} voice]|breathe in
learn_word,flashcard|Make a flashcard|word:word meaning:message|make a flashcard for {word}: {meaning};I want to learn {word}, it means {meaning};card {word}, back side {meaning}|the card for {word} is made
quiz_me,start_quiz|Start a quiz|topic:topic questions:int3-30?|quiz me on {topic}[ with {questions} questions];ask me[ {questions}] things about {topic};test my knowledge of {topic}[, {questions} questions]|the quiz starts
read_news_aloud,news_reader|Read headlines aloud|topic:topic count:int1-10?|read me[ {count}] headlines on {topic};say the news on {topic} aloud;let me hear[ {count}] stories about {topic}|I read the news
show_map,map|Show a map|city:city zoom:int1-18?|show a map of {city}[ at zoom {zoom}];let me see {city} on the map;map {city}[, zoom {zoom}]|the map is open
find_gas,gas_station|Find fuel nearby|city:city fuel:enum(diesel/petrol/gas)?|where can I fill the tank in {city}[ with {fuel}];find a[ {fuel}] station in {city};I need[ {fuel}] fuel in {city}|!found
report_traffic,traffic_jam|Report a traffic problem|place:stop kind:enum(jam/accident/roadwork)|there is a {kind} at {place};report a {kind} near {place};tell others about the {kind} at {place}|thank you for the report
rent_bike,bike_rental|Hire a bicycle|stop:stop hours:int1-24|get me a bike at {stop} for {hours} hours;rent a bicycle at {stop}, {hours} hours;I want to cycle from {stop} for {hours} hours|the bike waits at {stop}
check_in,flight_checkin|Check in for a flight|booking:id seat:id?|check me in for {booking}[ on seat {seat}];I fly with {booking}, check in[, seat {seat}];get the boarding pass of {booking}|you are checked in
choose_seat,seat_selection|Choose a seat|booking:id seat:id|put me on seat {seat} for {booking};take seat {seat} in {booking};I want {seat}, booking {booking}|seat {seat} is yours
upgrade_room,room_upgrade|Get a better hotel room|hotel:hotel class:enum(comfort/suite/family)|upgrade me to {class} at {hotel};I want a {class} room in {hotel} instead;change my room at {hotel} to {class}|the room is upgraded
wake_up_call,hotel_wakeup|Be woken by the hotel|room_number:int1-900 time:time|wake room {room_number} at {time};ring room {room_number} at {time};a wake up call for {room_number} at {time}|room {room_number} is called
set_language,app_language|Change the language of the app|language:language|speak {language} from now on;change the app to {language};I prefer {language}|the app speaks {language}
set_timezone,clock_zone|Change the time zone|city:city|use the clock of {city};set my zone to {city};I am in {city} now, change the zone|the zone is {city}
toggle_bluetooth,bluetooth|Turn bluetooth on or off|enabled:bool(on/off)|turn {enabled} bluetooth;bluetooth {enabled};switch the bluetooth {enabled}|bluetooth is {enabled}
pair_device,connect_device|Connect a device|device:device|connect my {device};pair the {device};link up with the {device}|the {device} is connected
find_device,locate|Make a lost device ring|device:device|I cannot find my {device};where did I leave the {device};make my {device} ring|the {device} rings
set_brightness,screen_brightness|Set how bright the screen is|percent:int1-100|dim the screen to {percent} percent;make the screen {percent} percent bright;set the display to {percent}|the screen is at {percent}
take_screenshot,screenshot|Save a picture of the screen||take a screenshot;save what is on my screen;capture the screen|the screenshot is saved
edit_photo,photo_filter|Apply a filter to a photo|path:path filter:enum(warm/cold/gray/sharp)|make {path} look {filter};apply the {filter} filter to {path};edit {path} with {filter}|{path} looks better
resize_image,scale_image|Change the size of a picture|path:path width:int50-4000|resize {path} to {width} pixels;make {path} {width} wide;scale {path} down to {width}|{path} is resized
convert_file,file_converter|Change the type of a file|path:path type:ext|convert {path} to {type};I need {path} as {type};turn {path} into a {type}|{path} is converted
upload_file,cloud_upload|Upload a file|path:path folder:folder?|upload {path}[ into {folder}];put {path} in the cloud[, folder {folder}];send {path} to the cloud[ under {folder}]|{path} is uploaded
count_words,word_count|Count the words of a file|path:path|how many words has {path};count the words in {path};word count of {path}|{path} is counted
encrypt_file,protect_file|Protect a file with a password|path:path code:code|protect {path} with the password {code};encrypt {path} using {code};lock the file {path} with {code}|{path} is protected
sign_document,e_sign|Sign a document|path:path name:person|sign {path} as {name};put the signature of {name} under {path};{name} signs {path}|{path} is signed
vote,cast_vote|Vote in a poll|poll:id choice:food|vote for {choice} in {poll};my choice in poll {poll} is {choice};in {poll} I pick {choice}|your vote counts
buy_gift,gift_card|Buy a gift card|person:person amount:int5-200|get {person} a gift card of {amount} euros;a {amount} euro present for {person};buy {person} a card worth {amount}|the gift is on the way
hire_cleaner,cleaning_service|Have a room cleaned by a person|room:room day:day|have the {room} cleaned {day};send a cleaner for the {room} {day};somebody should clean the {room} {day}|the cleaner comes
call_plumber,plumber|Have pipes repaired|room:room urgent:flag(right now)?|the sink in the {room} leaks[, come {urgent}];send a plumber to the {room}[ {urgent}];fix the pipes in the {room}[ {urgent}]|the plumber comes
measure_noise,noise_level|Measure the noise|room:room|how loud is it in the {room};measure the noise in the {room};is the {room} noisy|it is quiet
start_heater,heater|Warm the floor|room:room hours:int1-12?|warm the floor of the {room}[ for {hours} hours];heat the {room} floor[ {hours} hours];I have cold feet in the {room}|the floor gets warm
ring_bell,doorbell|Ring a bell|times:int1-5|ring the bell {times} times;let the bell sound {times} times;chime {times} times|the bell rings
open_gate,gate|Open the gate for a guest|name:person|let {name} in through the gate;open the gate for {name};{name} is at the gate|{name} can come in
plant_tree,tree_donation|Have trees planted|count:int1-50 country:country?|plant {count} trees[ in {country}];have {count} trees grow[ in {country}];give {count} trees[ to {country}]|the trees are planted
donate,charity|Donate to a good cause|topic:topic amount:num|donate {amount} for {topic};give {amount} euros to help {topic};support {topic} with {amount}|thank you for giving
find_job,job_search|Search open jobs|title:title city:city?|find a job as {title}[ in {city}];look for work in {title}[ around {city}];who hires for {title}[ in {city}]|!found
solve_equation,equation|Solve an equation|equation:expr|solve {equation};find x in {equation};what solves {equation}|!calc
convert_speed,speed_converter|Convert a speed|value:num from:unit_len to:unit_len|convert a speed of {value} {from} per hour to {to} per hour;how fast is {value} {from} per hour in {to}|!conv
age_in_days,days_old|Age in days|birthday:date|how many days old am I, born {birthday};count my days since {birthday};age in days for {birthday}|!days
leap_year,is_leap|Tell if a year is a leap year|year:int1800-2100|is {year} a leap year;does {year} have 366 days;check if {year} has a February 29|!bool
fortune,horoscope|Tell my fortune||tell my fortune;what do the stars say;read my horoscope|the stars smile
undo,undo_last|Undo the last action||undo that;take that back;revert the last step|it is undone
logout,sign_out|Sign out||log me out;sign me out;end my session|you are signed out
help_desk,ask_support|Ask the support team|text:message|ask the support team: {text};tell support that {text};I need help, {text}|support will answer""".split("\n")
LOOK_A = """hull rope blade leaf engine tower harvest signal cable shelf bark wheel roof lens grain shell petal lake trail tunnel crowd noise soil pixel
packet memory queue thread frame sugar salt protein vitamin lease tax visitor exit entry loading shipping repair lunch release update refund season
wall floor shadow market ferry tram taxi school tooth tail beak horn root seed fruit egg winter summer night""".split()
LOOK_B = "height width depth length price count rate speed age size limit level status date time number code name owner score color index quota season shop".split()
LOOK_KIND = dict(city="in", country="of", company="of", movie="of", book="of", song="of", food="for", word="of", id="of", museum="at", device="of", room="in", stop="at",
                 server="of", service="of", plant="of", animal="of", pet="of", planet="of", team="of", beach="at", hotel="at", person="of", path="of", restaurant="at", item="of")
LOOK_ONE = "owner value origin budget deadline nickname altitude capacity diameter visibility salinity radius jitter throughput habitat diet motto mayor anthem landlord curator mileage".split()
SYNONYMS = dict(l.split(":") for l in """polish:shine,buff inspect:examine,look_at launch:fire_up freeze:deep_freeze wrap:pack_up sort:put_in_order scan:digitize weigh:put_on_the_scale
measure:gauge repair:fix,mend sell:get_money_for hide:conceal wash:clean,rinse fold:crease stack:pile_up label:mark count:tally seal:close_tightly open:unseal close:shut
lift:raise,pull_up lower:bring_down,let_down spin:rotate stir:mix boil:cook slice:cut_up carve:shape sand:smooth cut:chop trim:shorten dig:excavate fill:top_up drain:let_the_water_out_of
cool:chill heat:warm_up cover:put_a_sheet_over collect:pick_up,gather deliver:bring,drop_off store:put_away,stash load:fill_up test:try_out tag:mark track:follow trace:find
lock:secure_tightly clear:wipe reset:set_back start:begin,fire_up stop:halt,end pause:hold resume:continue,go_on_with enable:activate,switch_on disable:deactivate,switch_off register:sign_up
approve:accept,okay reject:turn_down,refuse archive:put_into_storage publish:post,make_public share:pass_around copy:duplicate,clone merge:combine,join split:divide sync:align
verify:make_sure_of encrypt:scramble refresh:reload extend:prolong,lengthen renew:prolong upgrade:improve order:buy,get reserve:book,hold book:reserve rent:hire hire:rent
cancel:call_off,drop confirm:okay check:have_a_look_at update:change,bring_up_to_date flush:rinse_out mow:cut water:sprinkle glue:stick_together""".split())
SYNONYMS = {k: [x.replace("_", " ") for x in v.split(",")] for k, v in SYNONYMS.items()}
OPTIONS = """low high slow fast red blue soft hard small large short long early late dry wet plain fancy basic full half double single first second last north south
east west left right top bottom inner outer local remote public private manual auto simple deep light heavy warm cold fresh raw new old round square narrow wide loud silent
alpha beta gamma daily weekly monthly never always once twice paper metal wood glass cotton silk""".split()
KEYS = """value target input arg param field key thing subject object data entry option setting source goal choice detail info content label ref unit part section
target_name input_value main_arg first_arg user_value which what whom whose selector needle handle token slot""".split()
